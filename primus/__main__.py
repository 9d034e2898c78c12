"""python -m primus"""

from primus.cli import main

if __name__ == "__main__":
    main()
