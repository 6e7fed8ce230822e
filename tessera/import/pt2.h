// The importer of .pt2 archives, which torch.export.save writes. It works without libtorch.
#pragma once

#include <string>
#include <vector>

#include "tessera/import/import.h"
#include "tessera/import/pt2/state.h"

namespace tessera {

Importer pt2_importer();

// Returns the text of the graph in an archive without reading its weights, which may be absent:
// parameters have initial values. A plan and a simulation need no more. `keys` and `batch` are those
// of ArchiveReader in models/model_name.h. Errors: a key that the importer does not have; the errors
// of an import but those of weights.
Result<std::string> archive_graph(const std::string& path, const std::string& keys, int64_t batch);

// The module in an archive: its graph, and what its state_dict is to the graph.
struct ArchivedModule {
  std::string graph;                   // as archive_graph returns it
  std::vector<pt2::StateArray> state;  // arrays of the state_dict that are parameters of the graph
  std::vector<std::string> others;     // names of the other arrays of the state_dict
  // A safetensors file with those parameters of the graph whose values the import has computed, such
  // as rotary angles. They are in no state_dict. "": there are none.
  std::string constants;
};
// Reads the module in an archive without its weights. Arguments and errors: those of archive_graph.
Result<ArchivedModule> archived_module(const std::string& path, const std::string& keys,
                                       int64_t batch);

}  // namespace tessera
