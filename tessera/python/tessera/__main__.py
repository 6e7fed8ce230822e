import sys

from tessera._program import main

sys.exit(main())
