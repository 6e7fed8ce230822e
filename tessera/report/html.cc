#include "tessera/report/assets.h"
#include "tessera/report/report.h"

namespace tessera {
namespace {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

// Escapes JSON for a script element, because "</script" in the JSON would end the element early.
std::string inside_script(std::string text) {
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) {
    text.replace(at, 2, "<\\/");
  }
  return text;
}

void put(std::string& page, std::string_view mark, std::string_view content) {
  const size_t at = page.find(mark);
  if (at != std::string::npos) page.replace(at, mark.size(), content);
}

}  // namespace

Result<std::string> to_html(const Report& report) {
  if (web::echarts().empty()) {
    return invalid_input(
        "report: this build has no plotting library: npm was not found when it was configured "
        "(install npm, then make build)");
  }
  TESSERA_TRY(std::string data, report_data(report));
  std::string page(web::html());
  // Marks are replaced from the last to the first, so that inserted text is not searched for marks.
  std::string script;
  for (const std::string_view part : web::js()) script += part;
  put(page, "@JS@", script);
  put(page, "@ECHARTS@", web::echarts());
  put(page, "@DATA@", inside_script(std::move(data)));
  put(page, "@CSS@", web::css());
  put(page, "@VERDICT@", escape_html(verdict_text(report)));
  put(page, "@TITLE@", escape_html(report.title));
  return page;
}

}  // namespace tessera
