#include "tessera/comm/mpi/post.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tessera/comm/communicator.h"

namespace tessera::comm {
namespace {

constexpr int kTag = 1;
constexpr size_t kMostSpare = 32;
constexpr size_t kLongestReason = 4000;  // an abort must be small enough for MPI's eager protocol
// The first letter of a message on the control communicator.
constexpr char kAbort = '!', kQuestion = '?', kAnswer = '=';

}  // namespace

Post::Post(const std::vector<int>& rank_of_process) {
  int process = 0, processes = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  const bool given = static_cast<int>(rank_of_process.size()) == processes;
  const int rank = given ? rank_of_process[static_cast<size_t>(process)] : process;
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &data_);
  MPI_Comm_dup(data_, &control_);
  for (MPI_Comm comm : {MPI_COMM_WORLD, data_, control_}) {
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  MPI_Comm_rank(data_, &rank_);
  MPI_Comm_size(data_, &size_);
  MPI_Type_contiguous(static_cast<int>(kUnitBytes), MPI_BYTE, &unit_);
  MPI_Type_commit(&unit_);
}

Post::~Post() {
  // Cleans up only what is local, because a peer may be gone. MPI_Finalize frees the communicators.
  MPI_Type_free(&unit_);
  for (auto& [ticket, send] : sends_) {
    // MPI may still read this memory: let it live as long as the process.
    static_cast<void>(new ParcelPtr(send.parcel));
    MPI_Request_free(&send.request);
  }
}

ParcelPtr Post::take_parcel(size_t units) {
  auto& parcels = spare_->parcels;
  const auto fits = [&](const auto& p) {
    return p->capacity() >= units && p->capacity() <= 2 * units;
  };
  std::unique_ptr<Parcel> parcel;
  if (const auto found = std::ranges::find_if(parcels, fits); found != parcels.end()) {
    parcel = std::move(*found);
    parcels.erase(found);
  } else {
    parcel = std::make_unique<Parcel>(units);
  }
  return {parcel.release(), [spare = spare_](Parcel* p) {
            std::unique_ptr<Parcel> back(p);
            if (spare->parcels.size() >= kMostSpare) spare->parcels.erase(spare->parcels.begin());
            spare->parcels.push_back(std::move(back));
          }};
}

ParcelPtr Post::parcel(const Header& header) {
  const size_t bytes = sizeof(Header) + static_cast<size_t>(header.payload_bytes);
  ParcelPtr parcel = take_parcel((bytes + kUnitBytes - 1) / kUnitBytes);
  parcel->set_header(header);
  return parcel;
}

Post::Ticket Post::send(int to, ParcelPtr parcel) {
  const size_t bytes = sizeof(Header) + static_cast<size_t>(parcel->header().payload_bytes);
  const int units = static_cast<int>((bytes + kUnitBytes - 1) / kUnitBytes);
  Send send{MPI_REQUEST_NULL, std::move(parcel)};
  check(MPI_Isend(send.parcel->memory(), units, unit_, to, kTag, data_, &send.request), "send");
  sends_.emplace(next_ticket_, std::move(send));
  return next_ticket_++;
}

ParcelPtr Post::receive(int from, const Address& address) {
  const auto found = filed_.find({from, address});
  if (found == filed_.end()) return nullptr;
  ParcelPtr parcel = std::move(found->second);
  filed_.erase(found);
  return parcel;
}

bool Post::probe() {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(MPI_ANY_SOURCE, kTag, data_, &found, &message, &status), "probe");
  if (!found) return false;
  int units = 0;
  check(MPI_Get_count(&status, unit_, &units), "count");
  Arrival arrival{MPI_REQUEST_NULL, status.MPI_SOURCE, take_parcel(static_cast<size_t>(units))};
  check(MPI_Imrecv(arrival.parcel->memory(), units, unit_, &message, &arrival.request), "receive");
  arrivals_.push_back(std::move(arrival));
  return true;
}

void Post::poll_control() {
  int found = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, kTag, control_, &found, &status), "probe");
  if (!found) return;
  int bytes = 0;
  check(MPI_Get_count(&status, MPI_CHAR, &bytes), "count");
  std::string text(static_cast<size_t>(bytes), ' ');
  check(
      MPI_Recv(text.data(), bytes, MPI_CHAR, status.MPI_SOURCE, kTag, control_, MPI_STATUS_IGNORE),
      "receive");
  const char kind = text.empty() ? kAbort : text[0];
  if (kind == kQuestion) {
    questions_.push_back(status.MPI_SOURCE);
  } else if (kind == kAnswer) {
    std::vector<int>& ranks = answers_[status.MPI_SOURCE];
    ranks.clear();
    std::istringstream words(text.substr(1));
    for (int rank = 0; words >> rank;) ranks.push_back(rank);
  } else if (!abort_reason_) {
    abort_reason_ = text.substr(1);
  }
}

bool Post::progress() {
  bool any = false;
  while (probe()) any = true;
  for (Arrival& arrival : arrivals_) {
    int done = 0;
    check(MPI_Test(&arrival.request, &done, MPI_STATUS_IGNORE), "receive");
    if (!done) continue;
    const Address address = arrival.parcel->header().address;
    filed_.emplace(std::pair(arrival.from, address), std::move(arrival.parcel));
    arrival.parcel = nullptr;
    any = true;
  }
  std::erase_if(arrivals_, [](const Arrival& arrival) { return arrival.parcel == nullptr; });
  for (auto entry = sends_.begin(); entry != sends_.end();) {
    int done = 0;
    check(MPI_Test(&entry->second.request, &done, MPI_STATUS_IGNORE), "send");
    entry = done ? sends_.erase(entry) : std::next(entry);
    any |= done != 0;
  }
  if (!any) poll_control();
  return any;
}

void Post::send_control(int to, const std::string& text) {
  const std::string& kept = *control_texts_.emplace_back(std::make_unique<std::string>(text));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(kept.data(), static_cast<int>(kept.size()), MPI_CHAR, to, kTag, control_, &request);
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
}

void Post::ask(int whom) { send_control(whom, std::string(1, kQuestion)); }

void Post::answer(int whom, const std::vector<int>& waits_for) {
  send_control(whom, fmt::format("{}{}", kAnswer, fmt::join(waits_for, " ")));
}

void Post::broadcast_abort(const std::string& reason) {
  if (abort_reason_) return;
  abort_reason_ = reason;
  for (int to = 0; to < size_; ++to) {
    if (to != rank_) send_control(to, kAbort + reason.substr(0, kLongestReason));
  }
  // Lets MPI make progress for a few rounds, which pushes the small messages out.
  for (int i = 0; i < 100; ++i) {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, control_, &found, MPI_STATUS_IGNORE);
  }
}

void Post::check(int code, const char* what) const {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommFault{fmt::format("rank {}: MPI {} failed: {}", rank_, what, text.data())};
}

}  // namespace tessera::comm
