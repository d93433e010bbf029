/* SPDX-License-Identifier: Apache-2.0 */
/* lapsed --help and its manual page, both from the table of settings. */
#ifndef LAPSE_DAEMON_HELP_H
#define LAPSE_DAEMON_HELP_H

#include "base/buf.h"

void help_write(struct buf *out);
void help_write_man(struct buf *out);

#endif
