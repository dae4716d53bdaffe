"""How long do others take for what we do, and what do they leave out?

Question    Time, CPU, memory and traffic of whole commands in five tasks: archive finished segments; files on disk again; prove
            that an archive is whole; a topic that consumers can read; compaction.
Input       6 rolled segments of 256 MiB in real format (`benchmarks/segments.py`). For compaction: 1.5 GiB, 13 million records of
            a million keys (`benchmarks/compaction_input.py`). versitygw on the same machine; its connections stay open.
Unit        Seconds from the start of a process to its end, or until consumers can read: median, least and largest. MB/s, and
            that of the transfer alone where a program reports it. CPU seconds of the command, and of its servers. Peak Pss of the
            command and its children. Requests and MB to and from the store, headers included, of one run more through a proxy.
Promise     By medians, in MB/s of the fastest boto3 in the same task: `backfill` >= 1.0; `restore` >= 0.95, both sync;
            `verify --deep` >= 0.9; `compact --archive` >= 0.7 of a download and an upload of the same bytes, and <= 8 s on two
            idle cores, with <= 1.1 times the input received. Peak memory of every run <= 200, 200, 200 and 700 MB.
Run         python -m benchmarks.peers [--rounds 5] [--only archive restore verify topic compact] [--write]
            [--segments 24] [--leave-out rclone] [--json result.json]
            `--write` replaces tables and charts in benchmarks/README.md. `--tiny`: boto3 and ours, a few seconds.

Contestants alternate, in an order that is drawn for each round. Each checks its outcome outside of the measured time. Programs are
brought and built once, into the cache of tests/servers. A contestant that fails is listed with its error.
"""
