"""Executes the notebooks of examples/notebooks. Usage: python notebook_test.py [unittest options]; needs nbclient and ipykernel."""
import pathlib
import tempfile
import unittest

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "notebooks"


class NotebookTest(unittest.TestCase):
    def test_each_notebook_runs(self):
        notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
        self.assertTrue(notebooks)
        for path in notebooks:
            with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                notebook = nbformat.read(path, as_version=4)
                nbformat.validate(notebook)
                self.assertTrue(all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "outputs are left out")
                NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}},
                               extra_arguments=["--log-level=ERROR"]).execute()
                shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
                self.assertTrue(any("text/html" in output.get("data", {}) for output in shown))
                self.assertEqual([output for output in shown if output.output_type == "error"], [])


if __name__ == "__main__":
    unittest.main()
