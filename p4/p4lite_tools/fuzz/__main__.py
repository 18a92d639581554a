"""`python -m p4lite_tools.fuzz`."""

import sys

from p4lite_tools.fuzz.campaign import main

if __name__ == "__main__":
    sys.exit(main())
