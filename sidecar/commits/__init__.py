"""The commit protocol of an archive: lineages, stored commits, one winner for each number, uploads that are read back."""
