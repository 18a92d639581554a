"""`python -m p4lite.switch.fuzz`."""

import sys

from p4lite.switch.fuzz.campaign import main

if __name__ == "__main__":
    sys.exit(main())
