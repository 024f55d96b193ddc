-- Note how far the twin has come.
update twin.checkpoint set position = $1
