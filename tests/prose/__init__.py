"""Plain English in everything that people read: banned words, long sentences, and the mean sentence length of each page."""
