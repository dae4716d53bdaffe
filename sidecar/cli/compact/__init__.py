"""`compact`, of an archive and of a directory."""
