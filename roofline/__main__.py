"""``python -m roofline`` is the same command line as ``roofline``."""

from roofline.cli import main

if __name__ == "__main__":
    main()
