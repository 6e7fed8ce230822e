// A value, or none, that many owners share. To copy an owner does not copy the value. To write, an
// owner calls own(), which copies the value if other owners share it.
#pragma once

#include <memory>
#include <optional>
#include <utility>

namespace tessera {

template <class T>
class Shared {
 public:
  Shared() = default;
  Shared(std::nullopt_t) {}                                           // NOLINT: reads as none
  Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}  // NOLINT: takes a value
  Shared(const std::optional<T>& value) {                             // NOLINT: takes an optional
    if (value) value_ = std::make_shared<T>(*value);
  }

  explicit operator bool() const { return value_ != nullptr; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  operator const T&() const { return *value_; }  // NOLINT: reads as its value
  // Returns the value for writing. If other owners share it, this owner first gets a copy of its
  // own. There must be a value.
  T& own() {
    if (value_.use_count() > 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }

  friend bool operator==(const Shared& a, const Shared& b) {
    return a.value_ == b.value_ || (a && b && *a == *b);
  }
  friend bool operator==(const Shared& a, const T& b) { return a && *a == b; }

 private:
  std::shared_ptr<T> value_;
};

}  // namespace tessera
