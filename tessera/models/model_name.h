// Finds out what a MODEL of the command line or of a run file names. There is one such function, so
// that every command takes the same texts:
//
//   gpt:layers=4                  a family (families.h), with keys
//   my.graph                      a graph in text form; also the folder that holds model.graph
//   my.pt2                        an archive of torch.export.save (set_archive_reader)
//   models/llama/config.json      a Hugging Face configuration; also the folder that holds it
//   meta-llama/Meta-Llama-3-8B    a published name (architecture.h), with or without the
//                                 organisation, in any case: "Llama-3-8B"
//
// Keys may follow a configuration, an archive and a published name: "Llama-3-8B:seq=4096". A
// family goes before a folder of its name, and a folder before a published name; "./gpt" is the
// folder in any case.
//
//   TESSERA_TRY(const ModelName named, resolve_model("Llama-3-8B:seq=4096"));
//   // named.kind == kCall, named.call == "llama:layers=32,...", named.changes == ":seq=4096",
//   // named.title == "Llama-3-8B"
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tessera/base/result.h"

namespace tessera {

// The end of the name of a file with a graph in text form.
inline constexpr std::string_view kGraphSuffix = ".graph";

struct ModelName {
  enum class Kind : uint8_t { kCall, kConfig, kGraph, kArchive };
  Kind kind = Kind::kCall;
  std::string path = {};  // of kConfig, kGraph, kArchive: the file
  // "" or keys that follow a configuration, an archive or a published name, ":seq=2048". They count
  // more than those of the configuration or of `call`. An archive takes those of its importer and the
  // sizes that it leaves open.
  std::string changes = {};
  std::string call = {};    // of kCall: family and keys
  std::string title = {};   // the published name as it was given; "" for other texts
  std::string remark = {};  // how the model differs from the published one, if it does
};

// Resolves a text. Looks at the file system only to find folders. Errors, one line: a text that
// names nothing (with the nearest family or published name); a folder without a model; a published
// name that no family builds.
Result<ModelName> resolve_model(std::string_view text);

// Returns whether the text names a graph, or an archive, which is read as one. Such a file fixes the
// batch and all sizes.
bool names_graph_file(std::string_view text);
// Returns the path of the configuration that the text names, itself, as its folder, or with keys
// behind it. Returns "" if the text names none.
std::string config_file_of(std::string_view text);

// Reads an archive and returns the text of its graph. `keys` are ModelName::changes; `batch` is the
// batch for an archive that leaves it open, or 0 for that of its example. The reader is in a module
// above this one (import/pt2.h). A program that has it registers it once, before the first model is
// built. Without a reader, an archive is refused with the command that imports it.
using ArchiveReader = std::function<Result<std::string>(const std::string& path,
                                                        const std::string& keys, int64_t batch)>;
void set_archive_reader(ArchiveReader reader);
// Returns the text of the graph in the archive. Errors: those of the reader; there is no reader.
Result<std::string> read_archive(const std::string& path, const std::string& keys, int64_t batch);

}  // namespace tessera
