// A communicator over some ranks of another one, whose ranks count from 0. A program that was made
// for n ranks runs on any n ranks of a larger world: it sees only the numbers 0 to n - 1, and calls
// travel through the larger communicator, whose counters count them.
//
//   comm::Subworld island(world, {4, 5, 6, 7});      // on the ranks 4 to 7
//   island.rank();                                    // 0 to 3
#pragma once

#include <string>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

class Subworld : public Communicator {
 public:
  // Makes the endpoint of this rank. `members`: the ranks of `whole` that take part, in the order of
  // their new numbers; this rank is one of them. All members pass the same list, and keep `whole`
  // alive.
  Subworld(Communicator& whole, std::vector<int> members);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  int group(const std::vector<int>& members) override;
  Handle issue(int group, std::vector<Item> items, const Label& label) override {
    return whole_.issue(group, std::move(items), label);
  }
  Handle issue_send(int to, int64_t tag, DType dtype, ArrayView from, const Label& label) override {
    return whole_.issue_send(of_whole(to), tag, dtype, std::move(from), label);
  }
  Handle issue_recv(int from, int64_t tag, DType dtype, ArrayView into,
                    const Label& label) override {
    return whole_.issue_recv(of_whole(from), tag, dtype, std::move(into), label);
  }
  void wait(Handle handle) override { whole_.wait(handle); }
  void barrier() override;  // waits for the members only
  void abort(const std::string& reason) override { whole_.abort(reason); }
  Counters& counters() override { return whole_.counters(); }

 private:
  int of_whole(int rank) const { return members_[static_cast<size_t>(rank)]; }

  Communicator& whole_;
  std::vector<int> members_;
  int rank_ = 0;
};

}  // namespace tessera::comm
