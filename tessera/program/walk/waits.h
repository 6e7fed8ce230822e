// Who waits where for what has been issued: before it is first used. Sends are awaited where the
// last pass puts it (send_waits.cc). Private to tessera/program.
#pragma once

#include <map>
#include <vector>

#include "tessera/program/walk/text_writer.h"

namespace tessera {

class Waits {
 public:
  Waits(const Facts& facts, TextWriter& writer) : facts_(facts), writer_(writer) {
    places_.resize(writer.places());
  }

  // The site's instruction with this handle is under way.
  void issued(const Site& site, int handle) {
    places_[site.place.index()].pending[handle] = {site.block, site.when};
  }
  // Waits for what is still on its way (no handle: -1), in the block where it is used (prologue
  // values: in the prologue).
  void settle(const Site& use, int handle);
  // The last call: what nobody uses is awaited at the end of its block.
  void close();

 private:
  struct Pending {  // an issue that nobody has waited for yet
    BlockRef block;
    When when;
  };
  struct Awaited {  // its wait, in another block than the issue
    Pending issued;
    BlockRef block;
  };
  struct AtPlace {
    std::map<int, Pending> pending;  // by handle
    std::map<int, Awaited> awaited;
  };

  void wait_in(const Site& site, int handle, const Pending& issued);
  void settle_earlier(const Site& use, int handle);

  const Facts& facts_;
  TextWriter& writer_;
  std::vector<AtPlace> places_;
};

}  // namespace tessera
