"""`python -m millstream` is `mill`."""

from millstream.doors.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
