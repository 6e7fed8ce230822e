// A file through which another program steers a run (tessera train --steer FILE). It holds one JSON
// object:
//
//   {"plan": "data_parallel(4)"}   go on under this plan after the present step
//   {"stop": true}                 write a checkpoint after the present step, and end
//
// Write it under another name and rename it, so that no half of it is read. The file is read again
// when it has changed; while it is missing, the run goes on as it is.
//
//   SteeringFile file("job.steer", note);
//   callbacks.steer = [&](int64_t) { return file.look(); };
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>

#include "tessera/runtime/session.h"

namespace tessera {

class SteeringFile {
 public:
  // `note` is told, in one line, of content that has another form; it changes nothing.
  SteeringFile(std::string path, std::function<void(const std::string&)> note);

  // Returns what the file asks for, once after each change of the file.
  Steering look();

 private:
  std::string path_;
  std::function<void(const std::string&)> note_;
  std::tuple<uint64_t, int64_t, int64_t, int64_t> seen_;  // inode, size, time of the last change
};

}  // namespace tessera
