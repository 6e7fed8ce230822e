#include "tessera/runtime/step/ranks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>

namespace tessera {
namespace {

// This tag differs from the tags of programs, which count from 0.
constexpr int64_t kTransferTag = 1 << 30;

std::byte* bytes_of(std::vector<double>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace

int threads_of_rank(int ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks));
}

Status agree(comm::Communicator& world, const Status& mine) {
  // A rank with an error sends a text of the error's code (one character) and message. A rank
  // without an error sends an empty text.
  std::string said;
  if (!mine) said = static_cast<char>(mine.error().code) + mine.error().message;
  for (const std::string& one : comm::gather_bytes(world, said)) {
    if (one.empty()) continue;
    Error error;
    error.code = static_cast<ErrorCode>(one.front());
    error.message = one.substr(1);
    return tl::unexpected(std::move(error));
  }
  return {};
}

void transfer(comm::Communicator& world, int from, int to, std::vector<double>& values) {
  if (from == to) return;
  const Box box({{0, static_cast<int64_t>(values.size())}});
  const comm::ArrayView view{bytes_of(values), box, {1}};
  const comm::Label label{"report", "loss", ""};
  if (world.rank() == from)
    world.wait(world.issue_send(to, kTransferTag, DType::kFloat64, view, label));
  if (world.rank() == to)
    world.wait(world.issue_recv(from, kTransferTag, DType::kFloat64, view, label));
}

std::vector<std::string> sent_kinds() {
  std::vector<std::string> names;
  for (size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    names.emplace_back(collective_name(static_cast<CollectiveKind>(kind)));
  }
  names.emplace_back("send");
  return names;
}

std::vector<int64_t> bytes_sent(comm::Communicator& world) {
  std::vector<int64_t> bytes;
  for (const auto& traffic : world.counters().collectives) bytes.push_back(traffic.bytes);
  bytes.push_back(world.counters().point_to_point.bytes);
  return bytes;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

int64_t rss_bytes() {
  // The second number of the file is the number of resident pages.
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return file ? resident * static_cast<int64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace tessera
