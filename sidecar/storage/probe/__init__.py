"""Whether a store is fit for an archive, asked before the first upload."""
