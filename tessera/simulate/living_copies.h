// A `LivingCopies` has a bit for each copy of each buffer, which says whether the copy lives. The
// copies in slot k of all buffers with the same number of copies have neighbouring bits in words of
// their own. So all copies that belong to one micro-batch are read and written word by word.
//
//   LivingCopies living(slots);  // by buffer: how many copies it has
//   living.set(buffer, slot, true);
//   LivingCopies::Mask some = living.no_buffers();
//   living.add(buffer, some);
//   living.read(some, micro_batch, found);  // those of `some` whose copy of the micro-batch lives
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace tessera {

class LivingCopies {
 public:
  // Makes the bits; no copy lives. `slots`: the number of copies by buffer.
  explicit LivingCopies(const std::vector<int64_t>& slots) {
    for (const int64_t count : slots) {
      Group& group = groups_[count];
      place_.push_back({&group, group.buffers / kBits, uint64_t{1} << (group.buffers % kBits)});
      ++group.buffers;
    }
    for (auto& [count, group] : groups_) {
      group.words = (group.buffers + kBits - 1) / kBits;
      group.first = size_;
      group.in_mask = mask_size_;
      size_ += group.words * static_cast<size_t>(count);
      mask_size_ += group.words;
    }
    words_.assign(size_, 0);
  }
  LivingCopies(const LivingCopies&) = delete;  // the places have pointers to the groups
  LivingCopies& operator=(const LivingCopies&) = delete;

  bool lives(size_t buffer, int64_t slot) const {
    const Place& at = place_[buffer];
    return (words_[word(at, slot)] & at.bit) != 0;
  }
  void set(size_t buffer, int64_t slot, bool lives) {
    const Place& at = place_[buffer];
    uint64_t& word_of = words_[word(at, slot)];
    word_of = lives ? word_of | at.bit : word_of & ~at.bit;
  }

  // A bit for each buffer.
  using Mask = std::vector<uint64_t>;
  Mask no_buffers() const { return Mask(mask_size_, 0); }
  void add(size_t buffer, Mask& mask) const {
    const Place& at = place_[buffer];
    mask[at.group->in_mask + at.word] |= at.bit;
  }
  // Sets `out` to the buffers of the mask `of` whose copy for the micro-batch lives.
  void read(const Mask& of, int64_t micro_batch, Mask& out) const {
    visit(micro_batch,
          [&](size_t word, size_t in_mask) { out[in_mask] = words_[word] & of[in_mask]; });
  }
  void write(const Mask& of, int64_t micro_batch, const Mask& living) {
    visit(micro_batch, [&](size_t word, size_t in_mask) {
      words_[word] = (words_[word] & ~of[in_mask]) | living[in_mask];
    });
  }

 private:
  static constexpr size_t kBits = 64;
  struct Group {  // buffers of equally many copies
    size_t buffers = 0, words = 0, first = 0, in_mask = 0;
  };
  struct Place {
    const Group* group;
    size_t word;
    uint64_t bit;
  };
  static size_t word(const Place& at, int64_t slot) {
    return at.group->first + static_cast<size_t>(slot) * at.group->words + at.word;
  }
  template <class Visit>
  void visit(int64_t micro_batch, const Visit& each) const {
    for (const auto& [count, group] : groups_) {
      const size_t first = group.first + static_cast<size_t>(micro_batch % count) * group.words;
      for (size_t w = 0; w < group.words; ++w) each(first + w, group.in_mask + w);
    }
  }

  std::map<int64_t, Group> groups_;  // by number of copies
  std::vector<Place> place_;         // by buffer
  std::vector<uint64_t> words_;
  size_t size_ = 0, mask_size_ = 0;
};

}  // namespace tessera
