/* A libamd_smi.so that answers what a scenario file says. The real amdsmi binding loads it.
 *
 * The file named by FAKE_AMD_SMI has lines `GPU WHAT[.FIELD[/INDEX]] = VALUE`; GPU is a number or `*`, later lines win.
 * WHAT is a function's name without `amdsmi_get_` and `gpu_` (power_info, metrics_info, ecc_count_1 for block 1, ...).
 *   0 status.power_info = 2     the call answers with this status
 *   0 hang.power_info = 1       the call returns when there is a file named like the scenario with `.go` behind it,
 *                               and no signal ends it before
 *   0 wait.power_info = 0.5     the call takes this many seconds
 *   0 gone = 1                  the GPU was taken out: not found by a process that runs, not there for one that starts.
 *                               Which GPUs there are (`lib count`) is fixed when a process initialises
 *   lib count = 8 | lib init = 34 | lib hang.init = 1 | lib record = 1 (calls go to `FILE.calls`)
 * A function without any line is not supported by the part; a field without a line has all bits set ("no value").
 * The file is changed while the helper runs; the next call answers by it. A number may move by itself: `moving.h`.
 * What is set with amdsmi_set_power_cap stays, for all processes, in `FILE.GPU.cap0` and `.cap1` (PPT0, PPT1), and goes
 * when that file does (a driver reload). Each set is a line `GPU SENSOR µW` in `FILE.sets`. `0 oob = 500000000` is a limit
 * (µW) set past the driver; `0 stuck = 1`: a cap that is set has no effect. PPT1 is there when `power_cap_info_1` is.
 * Offsets and widths of the fields are generated from the binding itself: `amd_layout.h`.
 */
#define SCENARIO "FAKE_AMD_SMI"
#include "scenario.h"

struct field { const char *structure, *name; unsigned offset, width, count; };
#include "amd_layout.h"

enum { SUCCESS = 0, NOT_SUPPORTED = 2, NOT_FOUND = 31 };

static int ORDER[GPUS_MAX], order; /* the GPUs of this process */

/* A copy of what is said now; NULL when there is no such line. */
static const char *value_of(const char *who, const char *key, char *out, size_t size) {
  load();
  const char *value = said(who, key);
  return value ? snprintf(out, size, "%s", value), out : NULL;
}

static int enter(const char *who, const char *what) {
  const char *value;
  load();
  begin(who, what);
  if (is_gone(who) && strcmp(what, "device_bdf")) return NOT_FOUND; /* addresses are the library's own */
  if ((value = asked(who, "status", what)) || (value = said(who, "status"))) return atoi(value);
  return SUCCESS;
}

static void name_of(void *handle, char *out, size_t size) { snprintf(out, size, "%d", (int)(intptr_t)handle - 1); }

static void put(void *at, unsigned width, const char *text) {
  if (width == 4 && strchr(text, '.')) { float f = (float)atof(text); memcpy(at, &f, 4); return; }
  uint64_t number = text[0] == '-' ? (uint64_t)strtoll(text, NULL, 0) : strtoull(text, NULL, 0);
  memcpy(at, &number, width);
}

/* Fill a structure of the binding from the lines of `what`. */
static int fill(void *handle, const char *structure, const char *what, void *out, size_t size) {
  char who[32];
  size_t length = strlen(what);
  int found = 0;
  name_of(handle, who, sizeof who);
  int status = enter(who, what);
  if (status) return status;
  memset(out, 0xff, size);
  for (const struct field *f = FIELDS; f->structure; f++)
    if (!strcmp(f->structure, structure) && f->width == 1 && f->count > 1) memset((char *)out + f->offset, 0, f->count);
  for (int i = 0; i < lines; i++) {
    const struct line *l = &LINES[i];
    if (!is_for(l, who) || strncmp(l->key, what, length) || l->key[length] != '.') continue;
    found = 1;
    const char *name = l->key + length + 1, *slash = strchr(name, '/'), *value = moving(l->value, who);
    size_t name_length = slash ? (size_t)(slash - name) : strlen(name);
    for (const struct field *f = FIELDS; f->structure; f++) {
      if (strcmp(f->structure, structure) || strlen(f->name) != name_length || strncmp(f->name, name, name_length)) continue;
      char *at = (char *)out + f->offset;
      if (f->width == 1 && f->count > 1) snprintf(at, f->count, "%s", value);
      else if (slash) put(at + (unsigned)atoi(slash + 1) % f->count * f->width, f->width, value);
      else for (unsigned j = 0; j < f->count; j++) put(at + j * f->width, f->width, value);
    }
  }
  return found ? SUCCESS : NOT_SUPPORTED;
}

static int text_of(void *handle, const char *what, char *out, size_t size) {
  char who[32], value[256];
  name_of(handle, who, sizeof who);
  int status = enter(who, what);
  if (status) return status;
  if (!value_of(who, what, value, sizeof value)) return NOT_SUPPORTED;
  snprintf(out, size, "%s", value);
  return SUCCESS;
}

static int number_of(void *handle, const char *what, unsigned width, void *out) {
  char who[32], value[256];
  name_of(handle, who, sizeof who);
  int status = enter(who, what);
  if (status) return status;
  if (!value_of(who, what, value, sizeof value)) return NOT_SUPPORTED;
  put(out, width, value);
  return SUCCESS;
}

/* The GPUs that are there when the process initialises; it never learns of others. */
static void latch(void) {
  char v[256], who[16];
  int count = value_of("lib", "count", v, sizeof v) ? atoi(v) : 0;
  for (int i = order = 0; i < count && i < GPUS_MAX; i++) {
    snprintf(who, sizeof who, "%d", i);
    if (!value_of(who, "gone", v, sizeof v)) ORDER[order++] = i;
  }
}

int amdsmi_init(uint64_t flags) {
  char v[256];
  (void)flags;
  int status = enter("lib", "init");
  latch();
  return status ? status : value_of("lib", "init", v, sizeof v) ? atoi(v) : SUCCESS;
}
int amdsmi_shut_down(void) { load(); begin("lib", "shut_down"); return SUCCESS; }

/* One socket holds every processor: the binding asks for both lists twice, with and without room. */
int amdsmi_get_socket_handles(uint32_t *n, void **handles) {
  *n = order ? 1 : 0;
  if (handles && *n) handles[0] = (void *)(intptr_t)1;
  return SUCCESS;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *n, void **handles) {
  (void)socket;
  *n = (uint32_t)order;
  if (handles) for (uint32_t i = 0; i < *n; i++) handles[i] = (void *)(intptr_t)(ORDER[i] + 1);
  return SUCCESS;
}

int amdsmi_get_gpu_device_uuid(void *h, uint32_t *n, char *out) { return text_of(h, "device_uuid", out, *n); }
int amdsmi_get_gpu_device_bdf(void *h, uint64_t *out) {
  char text[64];
  unsigned domain, bus, device, function;
  int status = text_of(h, "device_bdf", text, sizeof text);
  if (status) return status;
  if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return NOT_FOUND;
  *out = function | device << 3 | bus << 8 | (uint64_t)domain << 16;
  return SUCCESS;
}
int amdsmi_get_gpu_compute_partition(void *h, char *out, uint32_t n) { return text_of(h, "compute_partition", out, n); }
int amdsmi_get_gpu_memory_partition(void *h, char *out, uint32_t n) { return text_of(h, "memory_partition", out, n); }
int amdsmi_get_energy_count(void *h, uint64_t *energy, float *resolution, uint64_t *at) {
  *at = 0;
  int status = number_of(h, "energy_count", 8, energy);
  return status ? status : number_of(h, "energy_resolution", 4, resolution);
}
int amdsmi_get_temp_metric(void *h, uint32_t sensor, uint32_t metric, int64_t *out) {
  char what[64];
  snprintf(what, sizeof what, "temp_metric_%u_%u", sensor, metric);
  return number_of(h, what, 8, out);
}
int amdsmi_gpu_xgmi_error_status(void *h, uint32_t *out) { return number_of(h, "xgmi_error_status", 4, out); }
int amdsmi_get_gpu_ecc_count(void *h, uint64_t block, void *out) {
  char what[64];
  snprintf(what, sizeof what, "ecc_count_%llu", (unsigned long long)block);
  return fill(h, "amdsmi_error_count_t", what, out, SIZE_amdsmi_error_count_t);
}
int amdsmi_get_clock_info(void *h, uint32_t type, void *out) {
  char what[64];
  snprintf(what, sizeof what, "clock_info_%u", type);
  return fill(h, "amdsmi_clk_info_t", what, out, SIZE_amdsmi_clk_info_t);
}
static void put_field(const char *structure, const char *name, void *out, uint64_t value) {
  for (const struct field *f = FIELDS; f->structure; f++)
    if (!strcmp(f->structure, structure) && !strcmp(f->name, name)) memcpy((char *)out + f->offset, &value, f->width);
}
static uint64_t field_of(const char *structure, const char *name, const void *from) {
  uint64_t value = 0;
  for (const struct field *f = FIELDS; f->structure; f++)
    if (!strcmp(f->structure, structure) && !strcmp(f->name, name)) memcpy(&value, (const char *)from + f->offset, f->width);
  return value;
}
/* What was set, by any process. */
static int cap_set(const char *who, unsigned sensor, uint64_t *out) {
  unsigned long long value;
  int found = told(who, sensor ? "cap1" : "cap0", &value);
  if (found) *out = value;
  return found;
}
int amdsmi_get_power_cap_info(void *h, uint32_t sensor, void *out) {
  char who[32], what[32];
  uint64_t cap;
  snprintf(what, sizeof what, sensor ? "power_cap_info_%u" : "power_cap_info", sensor);
  int status = fill(h, "amdsmi_power_cap_info_t", what, out, SIZE_amdsmi_power_cap_info_t);
  name_of(h, who, sizeof who);
  if (!status && cap_set(who, sensor, &cap)) put_field("amdsmi_power_cap_info_t", "power_cap", out, cap);
  return status;
}
int amdsmi_get_power_info(void *h, void *out) {
  char who[32], value[64];
  uint64_t cap;
  int status = fill(h, "amdsmi_power_info_t", "power_info", out, SIZE_amdsmi_power_info_t);
  if (status) return status;
  name_of(h, who, sizeof who);
  if (cap_set(who, 0, &cap)) put_field("amdsmi_power_info_t", "power_limit", out, cap);
  if (value_of(who, "oob", value, sizeof value)) {
    cap = strtoull(value, NULL, 0);
    if (cap < field_of("amdsmi_power_info_t", "power_limit", out)) put_field("amdsmi_power_info_t", "power_limit", out, cap);
  }
  return SUCCESS;
}
int amdsmi_set_power_cap(void *h, uint32_t sensor, uint64_t cap) {
  char who[32], name[512], fresh[560];
  char info[SIZE_amdsmi_power_cap_info_t];
  name_of(h, who, sizeof who);
  int status = enter(who, "set_power_cap");
  if (!status) status = amdsmi_get_power_cap_info(h, sensor, info);
  if (status) return status;
  if (cap > field_of("amdsmi_power_cap_info_t", "max_power_cap", info)) return 1;
  if (cap < field_of("amdsmi_power_cap_info_t", "min_power_cap", info)) return 1;
  snprintf(name, sizeof name, "%s.sets", path());
  FILE *file = fopen(name, "a");
  if (file) { fprintf(file, "%s %u %llu\n", who, sensor, (unsigned long long)cap); fclose(file); }
  if (value_of(who, "stuck", name, sizeof name)) return SUCCESS;
  snprintf(name, sizeof name, "%s.%s.cap%u", path(), who, sensor);
  snprintf(fresh, sizeof fresh, "%s.%d", name, (int)getpid());
  if (!(file = fopen(fresh, "w"))) return 51;
  fprintf(file, "%llu\n", (unsigned long long)cap);
  fclose(file);
  return rename(fresh, name) ? 51 : SUCCESS;
}

/* `bad_page_info.pages = 3`, `bad_page_info.pending = 1`: so many records, the first of them pending. */
int amdsmi_get_gpu_bad_page_info(void *h, uint32_t *n, void *out) {
  char who[32], v[256];
  name_of(h, who, sizeof who);
  int status = enter(who, "bad_page_info");
  if (status) return status;
  if (!value_of(who, "bad_page_info.pages", v, sizeof v)) return NOT_SUPPORTED;
  *n = (uint32_t)atoi(v);
  int pending = value_of(who, "bad_page_info.pending", v, sizeof v) ? atoi(v) : 0;
  for (uint32_t i = 0; out && i < *n; i++) {
    uint32_t page_status = (int)i < pending ? 1 : 0;
    char *record_at = (char *)out + i * SIZE_amdsmi_retired_page_record_t;
    memset(record_at, 0, SIZE_amdsmi_retired_page_record_t);
    memcpy(record_at + 16, &page_status, 4);
  }
  return SUCCESS;
}

/* `process_list = 2`: so many processes, with 1 GiB each. */
int amdsmi_get_gpu_process_list(void *h, uint32_t *n, char *out) {
  uint32_t room = *n, found = 0;
  int status = number_of(h, "process_list", 4, &found);
  if (status) return status;
  *n = found < room ? found : room;
  for (uint32_t i = 0; i < *n; i++) {
    char *at = out + i * SIZE_amdsmi_proc_info_t;
    uint32_t pid = 1000 + i;
    uint64_t mem = 1ull << 30;
    memset(at, 0, SIZE_amdsmi_proc_info_t);
    memcpy(at + 256, &pid, 4);
    memcpy(at + 264, &mem, 8);
  }
  return SUCCESS;
}

#define STRUCTURE(function, structure, what) \
  int function(void *h, void *out) { return fill(h, #structure, what, out, SIZE_##structure); }
STRUCTURE(amdsmi_get_gpu_metrics_info, amdsmi_gpu_metrics_t, "metrics_info")
STRUCTURE(amdsmi_get_gpu_asic_info, amdsmi_asic_info_t, "asic_info")
STRUCTURE(amdsmi_get_gpu_vram_usage, amdsmi_vram_usage_t, "vram_usage")
STRUCTURE(amdsmi_get_gpu_activity, amdsmi_engine_usage_t, "activity")
STRUCTURE(amdsmi_get_gpu_total_ecc_count, amdsmi_error_count_t, "total_ecc_count")
STRUCTURE(amdsmi_get_pcie_info, amdsmi_pcie_info_t, "pcie_info")
STRUCTURE(amdsmi_get_gpu_vbios_info, amdsmi_vbios_info_t, "vbios_info")
STRUCTURE(amdsmi_get_gpu_driver_info, amdsmi_driver_info_t, "driver_info")
STRUCTURE(amdsmi_get_gpu_xgmi_link_status, amdsmi_xgmi_link_status_t, "xgmi_link_status")
STRUCTURE(amdsmi_get_fw_info, amdsmi_fw_info_t, "fw_info")

/* Every other name that the binding wants to find: not supported. */
#define UNSUPPORTED(name) int name(void) { return NOT_SUPPORTED; }
#include "amd_rest.h"
