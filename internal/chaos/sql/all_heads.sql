select name, version from weir.streams
