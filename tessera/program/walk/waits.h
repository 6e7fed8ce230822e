// Who waits where: for what has been issued, before it is used; for sends, before what they read is
// overwritten. Waits are written as late as is safe. Private to tessera/program.
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
  // A send whose buffer must rest until it has been taken.
  void sent(const Site& site, int handle, int buffer) {
    places_[site.place.index()].sends.push_back({handle, buffer, site.block});
  }
  // Waits for what is still on its way (no handle: -1), in the block where it is used (prologue
  // values: in the prologue).
  void settle(const Site& use, int handle);
  // The last call. Waits that are still due: sends where their buffers come free at the latest,
  // unused arrivals at the end of their block.
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
  struct OpenSend {
    int handle;
    int buffer;
    BlockRef block;
  };
  struct AtPlace {
    std::map<int, Pending> pending;  // by handle
    std::map<int, Awaited> awaited;
    std::vector<OpenSend> sends;
  };

  void wait_in(const Site& site, int handle, const Pending& issued);
  void settle_earlier(const Site& use, int handle);
  void close_sends(PlaceId place);

  const Facts& facts_;
  TextWriter& writer_;
  std::vector<AtPlace> places_;
};

}  // namespace tessera
