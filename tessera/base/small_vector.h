// A list that is nearly always short: up to N elements are stored in the object itself, without an
// allocation. The interface is the part of std::vector's that the program uses.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace tessera {

template <class T, size_t N>
class SmallVector {
 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;

  SmallVector() = default;
  explicit SmallVector(size_t count) { resize(count); }
  SmallVector(size_t count, const T& value) { assign(count, value); }
  SmallVector(std::initializer_list<T> list) { append(list.begin(), list.end()); }
  template <std::forward_iterator It>
  SmallVector(It first, It last) {
    append(first, last);
  }
  SmallVector(const std::vector<T>& list) {  // NOLINT: converts a list
    append(list.begin(), list.end());
  }
  SmallVector(const SmallVector& other) { append(other.begin(), other.end()); }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) {
      clear();
      append(other.begin(), other.end());
    }
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this != &other) {
      clear();
      release();
      take(other);
    }
    return *this;
  }
  ~SmallVector() {
    clear();
    release();
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  iterator begin() { return data_; }
  iterator end() { return data_ + size_; }
  const_iterator begin() const { return data_; }
  const_iterator end() const { return data_ + size_; }
  reverse_iterator rbegin() { return reverse_iterator(end()); }
  reverse_iterator rend() { return reverse_iterator(begin()); }
  const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
  const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t count) {
    if (count > capacity_) grow(count);
  }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) {
      T made{std::forward<Args>(args)...};  // before grow(), as args may be one of the elements
      grow(size_t{2} * capacity_);
      return *std::construct_at(data_ + size_++, std::move(made));
    }
    return *std::construct_at(data_ + size_++, std::forward<Args>(args)...);
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  void pop_back() { std::destroy_at(data_ + --size_); }
  void clear() {
    std::destroy(begin(), end());
    size_ = 0;
  }
  void resize(size_t count, const T& value = T()) {
    while (size_ > count) pop_back();
    if (size_ == count) return;
    const T copy = value;  // NOLINT(performance-unnecessary-copy-initialization): may lie inside
    reserve(count);
    while (size_ < count) emplace_back(copy);
  }
  void assign(size_t count, const T& value) {
    const T copy = value;  // NOLINT(performance-unnecessary-copy-initialization): may lie inside
    clear();
    reserve(count);
    while (size_ < count) emplace_back(copy);
  }
  template <std::forward_iterator It>
  void assign(It first, It last) {  // from another list
    clear();
    append(first, last);
  }
  template <std::forward_iterator It>
  iterator insert(const_iterator at, It first, It last) {  // from another list
    const std::ptrdiff_t position = at - begin();
    const auto before = static_cast<std::ptrdiff_t>(size_);
    append(first, last);
    std::rotate(begin() + position, begin() + before, end());
    return begin() + position;
  }
  iterator insert(const_iterator at, T value) {
    const std::ptrdiff_t position = at - begin();
    emplace_back(std::move(value));
    std::rotate(begin() + position, end() - 1, end());
    return begin() + position;
  }
  iterator erase(const_iterator first, const_iterator last) {
    const iterator to = begin() + (first - begin());
    const iterator kept = std::move(begin() + (last - begin()), end(), to);
    std::destroy(kept, end());
    size_ = static_cast<uint32_t>(kept - begin());
    return to;
  }
  iterator erase(const_iterator at) { return erase(at, at + 1); }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const SmallVector& a, const SmallVector& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  T* inside() { return reinterpret_cast<T*>(storage_); }
  bool allocated() const { return data_ != reinterpret_cast<const T*>(storage_); }

  template <class It>
  void append(It first, It last) {
    const auto count = static_cast<size_t>(std::distance(first, last));
    reserve(size_ + count);
    std::uninitialized_copy(first, last, data_ + size_);
    size_ += static_cast<uint32_t>(count);
  }
  void grow(size_t count) {
    T* const fresh = std::allocator<T>().allocate(count);
    std::uninitialized_move(begin(), end(), fresh);
    std::destroy(begin(), end());
    release();
    data_ = fresh;
    capacity_ = static_cast<uint32_t>(count);
  }
  void release() {
    if (allocated()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = inside();
    capacity_ = N;
  }
  // Moves the elements of `other` to this list, which must be empty and have nothing allocated.
  void take(SmallVector& other) noexcept {
    if (other.allocated()) {
      data_ = std::exchange(other.data_, other.inside());
      size_ = std::exchange(other.size_, 0);
      capacity_ = std::exchange(other.capacity_, static_cast<uint32_t>(N));
      return;
    }
    std::uninitialized_move(other.begin(), other.end(), data_);
    size_ = other.size_;
    other.clear();
  }

  T* data_ = inside();
  uint32_t size_ = 0, capacity_ = N;
  alignas(T) unsigned char storage_[N * sizeof(T)];  // NOLINT(bugprone-sizeof-expression): T*
};

template <class T, size_t N, class Predicate>
void erase_if(SmallVector<T, N>& list, const Predicate& predicate) {
  list.erase(std::remove_if(list.begin(), list.end(), predicate), list.end());
}
// Removes all elements that are equal to the value.
template <class T, size_t N>
void erase_value(SmallVector<T, N>& list, const T& value) {
  list.erase(std::remove(list.begin(), list.end(), value), list.end());
}

}  // namespace tessera
