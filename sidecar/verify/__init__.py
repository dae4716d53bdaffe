"""What an archive has, read back: `status`, `verify`, the deep check, and objects that no commit names."""
