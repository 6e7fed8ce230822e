// Reads the description of a model in a .pt2 archive (nodes, tensors and weights) as C++ values. A
// union of the format is a std::variant. If a field is missing, has another type or an unknown tag,
// the error names the entry, the node and the field. Unknown fields are ignored because a larger
// minor version of the format may add some.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/import/pt2/archive.h"
#include "tessera/import/pt2/symbols.h"

namespace tessera::pt2 {

// The dtype, shape, strides and offset of a tensor of the program.
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
  std::vector<std::string> names;  // "" for an element that is None
};
// A dtype as an argument, by its number in the format (dtype_of()).
struct DTypeArg {
  int64_t number = 0;
};
// An argument that a graph does not need: a device, a layout or a memory format.
struct IgnoredArg {};
using Argument = std::variant<NoneArg, TensorArg, TensorsArg, bool, int64_t, double, std::string,
                              std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                              DTypeArg, IgnoredArg>;

struct Node {
  std::string name;    // name of the node: "linear_3"
  std::string target;  // "torch.ops.aten.linear.default"
  std::map<std::string, Argument, std::less<>> arguments;
  std::vector<std::string> outputs;  // tensors; "" for one that nobody reads
  std::string module;                // path of the innermost module: "blocks.0.attn"
  bool frozen = false;               // true: computed without gradient (torch.no_grad)
};

// Says where an input of the program comes from.
struct InputSpec {
  enum class Kind : uint8_t { kUser, kParameter, kBuffer, kConstant };
  Kind kind = Kind::kUser;
  std::string tensor;  // name in the program
  std::string name;    // name in the module: "blocks.0.ln.weight"
};
struct OutputSpec {
  bool user = true;  // false: a buffer to which the program writes
  std::string tensor;
};

// Where the bytes of a parameter, buffer or constant are: an entry of the archive, which several
// payloads may share, and the tensor's place in this entry (payloads.h).
struct Payload {
  std::string entry;
  TensorMeta meta;
  bool state = true;       // true: in the module's state_dict
  bool parameter = false;  // true: a parameter according to the archive's list of weights
  // The name in the module of a tensor whose elements the archive does not have, because the module
  // was exported under meta or fake tensors. "": the archive has them.
  std::string absent = {};
};

struct Program {
  std::string where;  // the archive and the entry, for messages
  // The nodes in order. The nodes of a region under torch.no_grad are in the position of the
  // region.
  std::vector<Node> nodes;
  std::map<std::string, TensorMeta, std::less<>> tensors;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::map<std::string, Payload, std::less<>> payloads;  // by the name in the module
};

// Reads the program. Sizes that it leaves open become numbers (symbols.h); `stated` has those that
// differ from the sizes of the example with which the module was exported.
Result<Program> read_program(const Archive& archive, const StatedSizes& stated = {});

// Returns the product of the sizes. Returns nothing if a size is negative, or if the product of the
// sizes above 0 is more than kMaxElements, even if another size is 0.
std::optional<int64_t> elements_of(const std::vector<int64_t>& sizes);

// Returns the dtype that has this number in the format; nothing if there is no DType for it
// (complex numbers, 8-bit floats).
std::optional<DType> dtype_of(int64_t number);

}  // namespace tessera::pt2
