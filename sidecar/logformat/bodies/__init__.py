"""What a batch holds: codecs, records of all formats, read and written."""
