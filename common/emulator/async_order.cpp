#include "async_order.hpp"

#include <charconv>
#include <cstdlib>
#include <stdexcept>

namespace emulator {

AsyncOrder AsyncOrder::parse(const std::string& text) {
  if (text == "late") return {};
  if (text == "early") return {.when = When::early};
  const std::string prefix = "random:";
  if (text.starts_with(prefix)) {
    AsyncOrder order{.when = When::random};
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + prefix.size(), last, order.seed);
    if (error == std::errc() && end == last) return order;
  }
  throw std::invalid_argument("EMULATOR_ASYNC is '" + text + "': late, early or random:SEED expected");
}

AsyncOrder AsyncOrder::current() {
  const char* text = std::getenv("EMULATOR_ASYNC");
  return text ? parse(text) : AsyncOrder{};
}

}  // namespace emulator
