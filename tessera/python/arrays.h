// Tensors of other libraries in and out of files, by DLPack: PyTorch's, NumPy's, JAX's.
//
//   view = _core.View(tensor)                       # no copy; view.dtype, view.shape
//   _core.write_arrays("w.safetensors", [("embed.weight", [64, 32], view)])
//   _core.map_arrays("w.safetensors", [("embed.weight", "embed.weight", [64, 32])])
//
// Elements go from the tensor's memory to the file, and arrays that are read lie in the mapped file,
// so that neither direction needs memory for a second copy.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera {

void add_arrays(nanobind::module_& module);

}  // namespace tessera
