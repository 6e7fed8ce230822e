// Raises the exceptions of the Python package (tessera/_errors.py) from C++.
#pragma once

#include <nanobind/nanobind.h>

#include "tessera/base/one_line.h"
#include "tessera/base/result.h"

namespace tessera {

// Raises the exception of the package that stands for the error's code.
[[noreturn]] inline void raise(const Error& error) {
  const char* name = error.code == ErrorCode::kInvalidInput ? "InputError"
                     : error.code == ErrorCode::kFault      ? "Fault"
                                                            : "DoesNotFit";
  const nanobind::object type = nanobind::module_::import_("tessera._errors").attr(name);
  PyErr_SetString(type.ptr(), message_line(error.message).c_str());
  throw nanobind::python_error();
}

}  // namespace tessera
