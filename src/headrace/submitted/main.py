"""What a cluster runs for `headrace submit`: the command line of Headrace, in the folder that came with it, if one did.

It is in a folder of its own, because Python looks for modules first where the file is that it runs.
"""

from __future__ import annotations

import os

from headrace.cli import main

if __name__ == "__main__":
    if os.path.isdir("headrace_pipeline"):
        os.chdir("headrace_pipeline")
    main()
