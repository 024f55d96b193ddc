// Command loans is not wired yet.
package main

func main() {}
