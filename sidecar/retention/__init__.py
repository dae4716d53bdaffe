"""What retention and DeleteRecords take from a log: what is pinned before, what is lost, and where the log begins."""
