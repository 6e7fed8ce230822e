#include "tessera/runtime/graph_halo.h"

#include <type_traits>

#include "tessera/base/check.h"

namespace tessera::sparse {
namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

constexpr int64_t kFetchTag = 1;
constexpr int64_t kReturnTag = 2;

template <class T>
constexpr DType dtype_of() {
  return std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64;
}

template <class T>
comm::ArrayView rows_of(T* data, int64_t rows, int64_t columns, int64_t stride) {
  return {reinterpret_cast<std::byte*>(data), Box::whole({rows, columns}), {stride, 1}};
}

int64_t halo_rows(const GraphPart& part, int64_t owner) {
  return part.halo_begin[at(owner + 1)] - part.halo_begin[at(owner)];
}
template <class T>
T* halo_row(const GraphPart& part, const Matrix<T>& matrix, int64_t owner) {
  return matrix.data + (part.own_nodes() + part.halo_begin[at(owner)]) * matrix.stride;
}

template <class T>
void check_matrix(const comm::Communicator& comm, const GraphPart& part, const Matrix<T>& matrix) {
  TESSERA_CHECK(comm.rank() == part.rank, "rank {} has the part of rank {}", comm.rank(),
                part.rank);
  TESSERA_CHECK(comm.size() == static_cast<int>(part.sends.size()), "{} ranks, parts for {}",
                comm.size(), part.sends.size());
  TESSERA_CHECK(matrix.rows == part.local_nodes(), "{} rows, {} nodes", matrix.rows,
                part.local_nodes());
}

}  // namespace

template <class T>
void fetch_halo(comm::Communicator& comm, const GraphPart& part, const Matrix<T>& x) {
  check_matrix(comm, part, x);
  const comm::Label label{"sparse product", "x", "ranks"};
  std::vector<comm::Handle> handles;
  std::vector<std::vector<T>> packed(part.sends.size());
  for (int peer = 0; peer < comm.size(); ++peer) {
    if (const int64_t rows = halo_rows(part, peer); rows > 0) {
      handles.push_back(comm.issue_recv(peer, kFetchTag, dtype_of<T>(),
                                        rows_of(halo_row(part, x, peer), rows, x.columns, x.stride),
                                        label));
    }
    const std::vector<int64_t>& list = part.sends[at(peer)];
    if (list.empty()) continue;
    std::vector<T>& buffer = packed[at(peer)];
    for (const int64_t row : list) {
      const T* const from = x.data + row * x.stride;
      buffer.insert(buffer.end(), from, from + x.columns);
    }
    handles.push_back(comm.issue_send(
        peer, kFetchTag, dtype_of<T>(),
        rows_of(buffer.data(), static_cast<int64_t>(list.size()), x.columns, x.columns), label));
  }
  for (const comm::Handle handle : handles) comm.wait(handle);
}

template <class T>
void return_halo(comm::Communicator& comm, const GraphPart& part, const Matrix<T>& dx) {
  check_matrix(comm, part, dx);
  const comm::Label label{"sparse product", "dx", "ranks"};
  std::vector<comm::Handle> handles;
  std::vector<std::vector<T>> arrived(part.sends.size());
  for (int peer = 0; peer < comm.size(); ++peer) {
    const int64_t rows = static_cast<int64_t>(part.sends[at(peer)].size());
    if (rows > 0) {
      arrived[at(peer)].resize(at(rows * dx.columns));
      handles.push_back(
          comm.issue_recv(peer, kReturnTag, dtype_of<T>(),
                          rows_of(arrived[at(peer)].data(), rows, dx.columns, dx.columns), label));
    }
    if (const int64_t sent = halo_rows(part, peer); sent > 0) {
      handles.push_back(
          comm.issue_send(peer, kReturnTag, dtype_of<T>(),
                          rows_of(halo_row(part, dx, peer), sent, dx.columns, dx.stride), label));
    }
  }
  for (const comm::Handle handle : handles) comm.wait(handle);
  for (size_t peer = 0; peer < arrived.size(); ++peer) {
    const T* from = arrived[peer].data();
    for (const int64_t row : part.sends[peer]) {
      T* const to = dx.data + row * dx.stride;
      for (int64_t j = 0; j < dx.columns; ++j) to[j] += *from++;
    }
  }
}

template void fetch_halo(comm::Communicator&, const GraphPart&, const Matrix<float>&);
template void fetch_halo(comm::Communicator&, const GraphPart&, const Matrix<double>&);
template void return_halo(comm::Communicator&, const GraphPart&, const Matrix<float>&);
template void return_halo(comm::Communicator&, const GraphPart&, const Matrix<double>&);

}  // namespace tessera::sparse
