// Included in front of every file of mlx-c: its io.h uses std::format, which GCC before 13 lacks.
#pragma once

#include <version>

#ifdef __cpp_lib_format
#include <format>
#else
#include <sstream>
#include <string>
#include <string_view>

namespace std {

// Replaces each "{}" by the next argument. mlx-c uses nothing else.
template <typename... Args>
string format(string_view pattern, const Args&... args) {
  ostringstream out;
  auto up_to_next = [&](const auto& value) {
    auto at = pattern.find("{}");
    out << pattern.substr(0, at);
    if (at != string_view::npos) {
      out << value;
      pattern.remove_prefix(at + 2);
    } else {
      pattern = {};
    }
  };
  (up_to_next(args), ...);
  out << pattern;
  return out.str();
}

} // namespace std
#endif
