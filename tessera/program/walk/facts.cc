// Facts of the walk: what takes more than a line to answer.
#include "tessera/program/walk/facts.h"

namespace tessera {

const Op* Facts::first_reader(TensorId id) const {
  const std::vector<OpId>& all = readers(id);
  return all.empty() ? nullptr : &graph_.op(all.front());
}

PlaceId Facts::made_on(TensorId id) const {
  const OpId producer = tensor(id).producer;
  return producer.valid() ? place_of(graph_.op(producer)) : analysis_.home_place[id.index()];
}

}  // namespace tessera
