"""What the wheel carries: everything but glibc, and none of it visible. Usage: python wheel_test.py WHEEL [unittest options]."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

MOST_BYTES = 25_000_000
# The parts of glibc, which every Linux with this architecture has.
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2", "linux-vdso.so.1"}
NEWEST_GLIBC = (2, 36)  # of Debian 12; Ubuntu 24.04 has 2.39


def read_elf(option, path):
    return subprocess.run(["readelf", "--wide", option, path], capture_output=True, text=True, check=True).stdout


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel = pathlib.Path(sys.argv[1]) if not hasattr(cls, "wheel") else cls.wheel
        folder = tempfile.TemporaryDirectory(prefix="tessera_wheel_test_")
        cls.addClassCleanup(folder.cleanup)
        cls.prefix = pathlib.Path(folder.name)
        with zipfile.ZipFile(cls.wheel) as archive:
            archive.extractall(cls.prefix)
        cls.objects = [path for path in cls.prefix.rglob("*") if ".so" in path.name]
        cls.core, = (path for path in cls.objects if path.name.startswith("_core."))

    def test_is_small(self):
        self.assertLessEqual(self.wheel.stat().st_size, MOST_BYTES)

    def test_has_the_types_and_the_command(self):
        self.assertTrue((self.prefix / "tessera" / "py.typed").exists())
        self.assertTrue((self.prefix / "tessera" / "_core.pyi").exists())
        entries, = self.prefix.glob("*.dist-info/entry_points.txt")
        self.assertIn("tessera=tessera._program:main", entries.read_text(encoding="utf-8").replace(" ", ""))

    def test_needs_nothing_but_glibc(self):
        carried = {path.name for path in self.objects}
        for path in self.objects:
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", read_elf("--dynamic", path)))
            self.assertLessEqual(needed, GLIBC | carried, path.name)
            asked = [tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", read_elf("--version-info", path))]
            self.assertLessEqual(max(asked, default=(0,)), NEWEST_GLIBC, path.name)

    def test_finds_what_it_carries_in_any_prefix(self):
        listed = subprocess.run(["ldd", self.core], capture_output=True, text=True, check=True, env={}).stdout
        for name, place in re.findall(r"(\S+) => (\S+)", listed):
            if name not in GLIBC:
                self.assertTrue(pathlib.Path(place).is_relative_to(self.prefix), f"{name} is found at {place}")
        self.assertNotIn("not found", listed)

    def test_shows_nothing_but_its_entry(self):
        symbols = subprocess.run(["nm", "--dynamic", "--defined-only", self.core], capture_output=True, text=True, check=True).stdout
        self.assertEqual([line.split()[-1] for line in symbols.splitlines()], ["PyInit__core"])


if __name__ == "__main__":
    WheelTest.wheel = pathlib.Path(sys.argv.pop(1))
    unittest.main()
