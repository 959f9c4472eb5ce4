"""A worker that does what its job says, step by step, to play every kind of ending.

Steps: ``say`` (a message), ``raw`` (bytes as latin-1), ``complain`` (a line on standard error),
``flood`` (a text and how often, on standard error), ``sleep`` (seconds), ``ignore termination``,
``ignore the end of input``, ``wait`` (until a file appears), ``exit`` (a status), ``kill`` (a
signal to itself).
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

deaf = threading.Event()


def end_with_standard_input():
    while os.read(0, 4096):
        pass
    if not deaf.is_set():
        os._exit(1)


def main(folder):
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    out = sys.stdout.buffer
    for kind, value in job["steps"]:
        if kind == "say":
            out.write(json.dumps(value).encode() + b"\n")
            out.flush()
        elif kind == "raw":
            out.write(value.encode("latin-1"))
            out.flush()
        elif kind == "complain":
            print(value, file=sys.stderr, flush=True)
        elif kind == "flood":
            text, count = value
            for _ in range(count):
                os.write(2, text.encode("latin-1"))
        elif kind == "pid":
            Path(value).write_text(str(os.getpid()))
            out.write(json.dumps({"type": "started", "pid": os.getpid()}).encode() + b"\n")
            out.flush()
        elif kind == "sleep":
            time.sleep(value)
        elif kind == "ignore the end of input":
            deaf.set()
        elif kind == "ignore termination":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        elif kind == "wait":
            while not Path(value).exists():
                time.sleep(0.01)
        elif kind == "exit":
            out.flush()
            os._exit(value)
        elif kind == "kill":
            os.kill(os.getpid(), value)
            time.sleep(5)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
