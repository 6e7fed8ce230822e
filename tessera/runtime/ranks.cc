#include "tessera/runtime/ranks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <thread>
#include <utility>

namespace tessera {
namespace {

// Apart from the tags of programs, which count from 0.
constexpr int64_t kTransferTag = 1 << 30;

std::byte* bytes_of(std::vector<double>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

}  // namespace

int threads_of_rank(int ranks) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks));
}

std::vector<std::vector<double>> gather_all(comm::Communicator& world,
                                            const std::vector<double>& mine) {
  const auto n = static_cast<int64_t>(mine.size());
  const int ranks = world.size(), me = world.rank();
  if (ranks == 1) return {mine};
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  Redistribution what;
  what.kind = CollectiveKind::kAllGather;
  what.dtype = DType::kFloat64;
  for (int rank = 0; rank < ranks; ++rank) {
    what.hold.push_back(Box({{rank * n, n}}));
    what.need.push_back(Box({{0, ranks * n}}));
  }
  std::vector<double> in = mine, out(static_cast<size_t>(ranks * n));
  const auto index = static_cast<size_t>(me);
  const comm::Item item{
      &what, {bytes_of(in), what.hold[index], {1}}, {bytes_of(out), what.need[index], {1}}};
  world.wait(world.issue(world.group(members), {item}, {"summary", "statistics", "all ranks"}));
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.emplace_back(out.begin() + rank * n, out.begin() + (rank + 1) * n);
  }
  return all;
}

std::vector<std::vector<double>> gather_lists(comm::Communicator& world, std::vector<double> mine) {
  const auto sizes = gather_all(world, {static_cast<double>(mine.size())});
  double most = 0;
  for (const auto& size : sizes) most = std::max(most, size[0]);
  mine.resize(static_cast<size_t>(most));
  std::vector<std::vector<double>> all = gather_all(world, mine);
  for (size_t rank = 0; rank < all.size(); ++rank)
    all[rank].resize(static_cast<size_t>(sizes[rank][0]));
  return all;
}

std::string text_from(comm::Communicator& world, int rank, const std::string& text) {
  std::vector<double> letters;
  if (world.rank() == rank)
    for (const char letter : text) letters.push_back(static_cast<unsigned char>(letter));
  const std::vector<std::vector<double>> lists = gather_lists(world, std::move(letters));
  std::string all;
  for (const double letter : lists[static_cast<size_t>(rank)])
    all.push_back(static_cast<char>(static_cast<unsigned char>(letter)));
  return all;
}

Status agree(comm::Communicator& world, const Status& mine) {
  const double code = mine ? -1 : static_cast<double>(mine.error().code);
  const auto all = gather_all(world, {code});
  const auto first =
      std::find_if(all.begin(), all.end(), [](const auto& one) { return one[0] >= 0; });
  if (first == all.end()) return {};
  const auto rank = static_cast<int>(first - all.begin());
  Error error;
  error.code = static_cast<ErrorCode>(static_cast<int>((*first)[0]));
  error.message = text_from(world, rank, mine ? "" : mine.error().message);
  return tl::unexpected(std::move(error));
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

std::vector<double> bytes_sent(const comm::Communicator& world) {
  std::vector<double> bytes;
  for (const auto& traffic : world.counters().collectives)
    bytes.push_back(static_cast<double>(traffic.bytes));
  bytes.push_back(static_cast<double>(world.counters().point_to_point.bytes));
  return bytes;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

int64_t rss_bytes() {
  // The second number: resident pages.
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return file ? resident * static_cast<int64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace tessera
