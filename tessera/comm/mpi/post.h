// The message layer of the MPI communicator: it sends buffers with an address from rank to rank,
// and no call blocks.
//
// Every message is one MPI message: a header of fixed size, then the payload. All messages have the
// same tag on one MPI communicator of this layer's own. The receiver takes whatever message arrives
// (matched probe) and files it under the address in its header. So messages of different groups
// cannot mix; groups need no MPI communicators, which all processes would have to make together;
// and a message may arrive before its receiver has issued the call. A second MPI communicator
// carries the news of an abort. It also carries questions: a rank that has waited too long asks the
// others which ranks they wait for.
#pragma once

#include <mpi.h>

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::comm {

// The call that a message belongs to. No two messages from one rank to another have the same
// address.
struct Address {
  // A hash of the member list. Point-to-point messages and barriers have constants of their own.
  uint64_t group = 0;
  int64_t tag = 0;  // of a point-to-point message; else 0
  // Counts the calls of a group, or the point-to-point messages with the same tag.
  int64_t sequence = 0;
  int64_t phase = 0;
  friend auto operator<=>(const Address&, const Address&) = default;
};

struct Header {
  Address address;
  uint64_t signature = 0;  // of the call (transfer.h): equal on both sides if the calls match
  int64_t payload_bytes = 0;
  std::array<char, 208> text{};  // describes the sender's call, for errors about mismatches
};
inline constexpr size_t kUnitBytes =
    64;  // messages are whole units: lengths beyond 2^31 bytes stay ints
static_assert(sizeof(Header) % kUnitBytes == 0);

// A message in memory. The Post reuses the memory when no ParcelPtr refers to it any more.
class Parcel {
 public:
  explicit Parcel(size_t units) : units_(units), memory_(new std::byte[units * kUnitBytes]) {}
  void set_header(const Header& header) { std::memcpy(memory_.get(), &header, sizeof header); }
  Header header() const {
    Header header;
    std::memcpy(&header, memory_.get(), sizeof header);
    return header;
  }
  std::byte* payload() { return memory_.get() + sizeof(Header); }
  std::byte* memory() { return memory_.get(); }
  size_t capacity() const { return units_; }  // in units

 private:
  size_t units_;
  std::unique_ptr<std::byte[]> memory_;
};
using ParcelPtr = std::shared_ptr<Parcel>;

class Post {
 public:
  explicit Post(const std::vector<int>& rank_of_process);
  ~Post();
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  ParcelPtr parcel(const Header& header);  // with memory for the payload
  // Sends the parcel and returns a ticket; sent(ticket) says whether MPI has finished sending it.
  using Ticket = int64_t;
  Ticket send(int to, ParcelPtr parcel);
  bool sent(Ticket ticket) const { return !sends_.contains(ticket); }
  // Returns the message that came from a rank under an address, and forgets it. Returns null if
  // none has come.
  ParcelPtr receive(int from, const Address& address);

  // Makes progress with all messages; returns whether anything happened. Throws CommFault if MPI
  // reports an error.
  bool progress();

  // Asks a rank which ranks it waits for. Only a rank that makes progress answers.
  void ask(int whom);
  // Returns the ranks that have asked since the last call. Reply to each of them with answer().
  std::vector<int> take_questions() { return std::exchange(questions_, {}); }
  void answer(int whom, const std::vector<int>& waits_for);
  // Forgets the answers so far. answers() returns the answers that have come since then, by the
  // rank that gave them.
  void forget_answers() { answers_.clear(); }
  const std::map<int, std::vector<int>>& answers() const { return answers_; }

  // Returns the reason that another rank gave when it aborted; nothing if no abort has been heard
  // of.
  const std::optional<std::string>& abort_reason() const { return abort_reason_; }
  void broadcast_abort(const std::string& reason);

 private:
  struct Send {
    MPI_Request request;
    ParcelPtr parcel;
  };
  struct Arrival {
    MPI_Request request;
    int from;
    ParcelPtr parcel;
  };
  ParcelPtr take_parcel(size_t units);
  bool probe();
  void poll_control();
  // Sends a text on the second MPI communicator. Ignores errors, because the peer may be the rank
  // that is lost.
  void send_control(int to, const std::string& text);
  void check(int code, const char* what) const;

  // Parcels whose memory can be used again. The list is shared because each parcel returns to it
  // when its last owner lets go, which may be after the Post is gone.
  struct Spare {
    std::vector<std::unique_ptr<Parcel>> parcels;
  };
  std::shared_ptr<Spare> spare_ = std::make_shared<Spare>();
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Datatype unit_ = MPI_DATATYPE_NULL;
  int rank_ = 0;
  int size_ = 1;
  Ticket next_ticket_ = 0;
  std::map<Ticket, Send> sends_;
  std::vector<Arrival> arrivals_;  // messages that MPI is receiving now
  std::map<std::pair<int, Address>, ParcelPtr> filed_;
  std::optional<std::string> abort_reason_;
  std::vector<int> questions_;
  std::map<int, std::vector<int>> answers_;
  std::vector<std::unique_ptr<std::string>> control_texts_;  // kept until the process ends
};

}  // namespace tessera::comm
