// Reads what a .pt2 archive says of a model: its nodes, tensors and weights, as values. Each union
// of the format is a variant. A field that is missing, of another type, or of an unknown tag is an
// error that names the entry, the node and the field; unknown fields are ignored, as a larger minor
// version of the format may add some.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/import/pt2/archive.h"

namespace tessera::pt2 {

// The dtype, shape and place of a tensor of the program.
struct TensorMeta {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t storage_offset = 0;
  bool requires_grad = true;
};

struct NoneArg {};
struct TensorArg {
  std::string name;
};
struct TensorsArg {
  std::vector<std::string> names;  // "" for none
};
// A dtype that was written as an argument; the number is that of the format.
struct DTypeArg {
  int64_t number = 0;
};
// Devices, layouts and memory formats, which a graph does not know.
struct IgnoredArg {};
using Argument = std::variant<NoneArg, TensorArg, TensorsArg, bool, int64_t, double, std::string,
                              std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                              DTypeArg, IgnoredArg>;

struct Node {
  std::string name;    // name of the node: "linear_3"
  std::string target;  // "torch.ops.aten.linear.default"
  std::map<std::string, Argument, std::less<>> arguments;
  std::vector<std::string> outputs;  // tensors; "" for tensors that nobody reads
  std::string module;                // path of the innermost module: "blocks.0.attn"
  bool frozen = false;               // computed without gradient (torch.no_grad)
};

// Says where an input of the program comes from.
struct InputSpec {
  enum class Kind : uint8_t { kUser, kParameter, kBuffer, kConstant };
  Kind kind = Kind::kUser;
  std::string tensor;  // name in the program
  std::string name;    // name in the module: "blocks.0.ln.weight"
};
struct OutputSpec {
  bool user = true;  // false: a buffer that the program writes
  std::string tensor;
};

// The bytes of a parameter, buffer or constant: an entry of the archive, a storage that several of
// them may share (payloads.h).
struct Payload {
  std::string entry;
  TensorMeta meta;
  bool state = true;       // whether it is in the module's state_dict
  bool parameter = false;  // whether the list of weights says so
};

struct Program {
  std::string where;  // the archive and the entry, for messages
  // The nodes in order; nodes of regions under torch.no_grad stand where the region is.
  std::vector<Node> nodes;
  std::map<std::string, TensorMeta, std::less<>> tensors;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::map<std::string, Payload, std::less<>> payloads;  // by name in the module
};

Result<Program> read_program(const Archive& archive);

// Returns the product of the sizes. Returns nothing if a size is negative, or if the product of the
// sizes above 0 is more than kMaxElements, even if another size is 0.
std::optional<int64_t> elements_of(const std::vector<int64_t>& sizes);

// Returns the dtype of a number of the format; nothing for dtypes that no tensor here has (complex,
// 8-bit floats).
std::optional<DType> dtype_of(int64_t number);

}  // namespace tessera::pt2
