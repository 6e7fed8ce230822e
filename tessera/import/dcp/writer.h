// Writes a folder that torch.distributed.checkpoint loads, on any number of ranks. Each array is cut
// along its first dim into as many chunks as there are files, as FSDP2 cuts it, and these into chunks
// of at most kMostSavedBytes (save.h). The bytes of the arrays come in any order; memory does not
// grow with them.
//
//   TESSERA_TRY(DcpWriter writer, DcpWriter::create(folder, std::move(arrays), 4));
//   TESSERA_TRY_VOID(writer.write(0, offset, bytes, data));
//   TESSERA_TRY_VOID(writer.finish(std::move(objects), std::move(paths)));
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/import/dcp/metadata.h"
#include "tessera/import/dcp/pickle.h"
#include "tessera/import/new_folder.h"

namespace tessera::dcp {

class DcpWriter : public ArrayWriter {
 public:
  // Lays out the files and creates them. `folder` must live as long as the writer. Errors: a fault if
  // a file cannot be written.
  static Result<DcpWriter> create(const NewFolder& folder, const std::vector<ArrayEntry>& arrays,
                                  int64_t files);
  ~DcpWriter() override;
  DcpWriter(DcpWriter&&) noexcept;
  DcpWriter& operator=(DcpWriter&&) = delete;

  // Writes bytes, as ArrayWriter says. Bytes that are never written are zero.
  Status write(size_t array, int64_t offset, int64_t bytes, const std::byte* data) override;
  // Writes what surrounds the arrays' bytes, the objects (values that are no tensors, by name), and
  // last the .metadata, and syncs all files. `others`: further names of arrays, by their number.
  Status finish(std::map<std::string, PickleWriter> objects, decltype(Metadata::paths) paths,
                const std::map<std::string, size_t>& others = {});
  int64_t bytes() const;  // of all files but the .metadata

 private:
  struct Layout;
  explicit DcpWriter(std::unique_ptr<Layout> layout);
  std::unique_ptr<Layout> layout_;
};

}  // namespace tessera::dcp
