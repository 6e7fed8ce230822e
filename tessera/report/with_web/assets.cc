#include "tessera/report/assets.h"

// Embeds a file as the symbols tessera_<name> (first byte) and tessera_<name>_end.
#define TESSERA_EMBED(name, file)                                                                  \
  __asm__(                                                                                         \
      ".section .rodata\n"                                                                         \
      ".global tessera_" #name                                                                     \
      "\n"                                                                                         \
      ".global tessera_" #name                                                                     \
      "_end\n"                                                                                     \
      "tessera_" #name                                                                             \
      ":\n"                                                                                        \
      ".incbin \"" file                                                                            \
      "\"\n"                                                                                       \
      "tessera_" #name                                                                             \
      "_end:\n"                                                                                    \
      ".byte 0\n"                                                                                  \
      ".previous\n");                                                                              \
  extern "C" const char tessera_##name[], tessera_##name##_end[]

TESSERA_EMBED(web_html, TESSERA_WEB "/report.html");
TESSERA_EMBED(web_css, TESSERA_WEB "/report.css");
TESSERA_EMBED(web_base_js, TESSERA_WEB "/base.js");
TESSERA_EMBED(web_plans_js, TESSERA_WEB "/plans.js");
TESSERA_EMBED(web_timeline_js, TESSERA_WEB "/timeline.js");
TESSERA_EMBED(web_memory_js, TESSERA_WEB "/memory.js");
TESSERA_EMBED(web_curve_js, TESSERA_WEB "/curve.js");
TESSERA_EMBED(web_record_js, TESSERA_WEB "/record.js");
TESSERA_EMBED(web_page_js, TESSERA_WEB "/page.js");
TESSERA_EMBED(web_echarts, TESSERA_ECHARTS);

namespace tessera::web {
namespace {
std::string_view between(const char* from, const char* to) {
  return {from, static_cast<size_t>(to - from)};
}
}  // namespace

std::string_view html() { return between(tessera_web_html, tessera_web_html_end); }
std::string_view css() { return between(tessera_web_css, tessera_web_css_end); }
std::vector<std::string_view> js() {
  return {between(tessera_web_base_js, tessera_web_base_js_end),
          between(tessera_web_plans_js, tessera_web_plans_js_end),
          between(tessera_web_timeline_js, tessera_web_timeline_js_end),
          between(tessera_web_memory_js, tessera_web_memory_js_end),
          between(tessera_web_curve_js, tessera_web_curve_js_end),
          between(tessera_web_record_js, tessera_web_record_js_end),
          between(tessera_web_page_js, tessera_web_page_js_end)};
}
std::string_view echarts() { return between(tessera_web_echarts, tessera_web_echarts_end); }

}  // namespace tessera::web
