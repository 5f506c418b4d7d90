"""``python -m cfe_faiss``: the command ``cfe-faiss``."""

import sys

from cfe_faiss.cli import main

if __name__ == "__main__":
    sys.exit(main())
