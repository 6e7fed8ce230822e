// A list that many SharedList objects share. To copy such an object does not copy the list; a write
// to a shared list copies the list first.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace tessera {

template <class T>
class SharedList {
 public:
  SharedList() = default;
  SharedList(std::vector<T> list)  // NOLINT: converts a list
      : list_(std::make_shared<std::vector<T>>(std::move(list))) {}
  SharedList(std::initializer_list<T> list) : SharedList(std::vector<T>(list)) {}
  const std::vector<T>& list() const { return list_ ? *list_ : none(); }
  operator const std::vector<T>&() const { return list(); }  // NOLINT: reads as a list
  size_t size() const { return list().size(); }
  bool empty() const { return list().empty(); }
  const T& operator[](size_t i) const { return list()[i]; }
  const T& front() const { return list().front(); }
  const T& back() const { return list().back(); }
  auto begin() const { return list().begin(); }
  auto end() const { return list().end(); }
  void push_back(T value) { own().push_back(std::move(value)); }
  void assign(size_t count, const T& value) { own().assign(count, value); }
  void set(size_t i, T value) { own()[i] = std::move(value); }
  // Returns the list for writing. If other objects share it, this object first gets a copy of its
  // own.
  std::vector<T>& own() {
    if (!list_ || list_.use_count() > 1) list_ = std::make_shared<std::vector<T>>(list());
    return *list_;
  }
  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.list_ == b.list_ || a.list() == b.list();
  }

 private:
  static const std::vector<T>& none() {
    static const std::vector<T> empty;
    return empty;
  }
  std::shared_ptr<std::vector<T>> list_;
};

}  // namespace tessera
