"""Start the command line from a checkout: ``python cli.py recommend llama-3.1-8b``."""

from roofline.cli import main

if __name__ == "__main__":
    main()
