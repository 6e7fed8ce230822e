#include "tessera/runtime/arrays/copier.h"

#include <exception>
#include <string>
#include <utility>

namespace tessera {
namespace {

// Runs a job. Returns "" or, in one line, why it failed.
std::string failure_of(const Copier::Job& job) {
  std::string failure;
  try {
    if (const Status status = job(); !status) failure = status.error().message;
  } catch (const std::exception& error) {
    failure = error.what();
  }
  return failure.substr(0, failure.find('\n'));
}

constexpr int64_t kFirstLate = -2;  // -1 is no ticket

}  // namespace

Copier::Copier() = default;

Copier::~Copier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

int64_t Copier::submit(const Job* job) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  queue_.push_back(job);
  changed_.notify_all();
  return submitted_++;
}

int64_t Copier::submit_late(const Job* job) {
  const std::lock_guard lock(mutex_);
  const int64_t ticket = late_.empty() ? kFirstLate : late_.begin()->first - 1;
  late_.emplace(ticket, job);
  return ticket;
}

Status Copier::wait(int64_t ticket) {
  std::unique_lock lock(mutex_);
  if (const auto late = late_.find(ticket); late != late_.end()) {
    const Job* job = late->second;
    late_.erase(late);
    lock.unlock();
    const std::string failure = failure_of(*job);
    if (!failure.empty()) return fault(failure);
    return {};
  }
  changed_.wait(lock, [&] { return done_ > ticket || !failure_.empty(); });
  if (!failure_.empty()) return fault(failure_);
  return {};
}

Status Copier::wait_for_all() {
  int64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = submitted_ - 1;
  }
  return wait(last);
}

void Copier::work() {
  const kernels::ThreadScope scope(1);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const Job* job = queue_.front();
    queue_.pop_front();
    lock.unlock();
    std::string failure = failure_of(*job);
    lock.lock();
    ++done_;
    if (!failure.empty()) {
      failure_ = std::move(failure);
      changed_.notify_all();
      return;
    }
    changed_.notify_all();
  }
}

}  // namespace tessera
