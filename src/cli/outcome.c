/* SPDX-License-Identifier: Apache-2.0 */
/* Errors and HTTP statuses as exit codes. */
#include "cli/outcome.h"

#include "base/err.h"

enum outcome outcome_of_error(int err)
{
	switch ((enum lapse_error)err) {
	case LAPSE_OK:
		return OUTCOME_OK;
	case LAPSE_EUNAUTHORIZED:
	case LAPSE_EFORBIDDEN:
		return OUTCOME_DENIED;
	case LAPSE_ENOTFOUND:
		return OUTCOME_NOT_FOUND;
	case LAPSE_ETIMEOUT:
	case LAPSE_EINTERNAL:
	case LAPSE_EUNAVAILABLE:
	case LAPSE_ERETRY:
	case LAPSE_EFULL:
	case LAPSE_EIO:
	case LAPSE_ESYNC:
	case LAPSE_EUPSTREAM:
	case LAPSE_EUNKNOWN:
		return OUTCOME_UNAVAILABLE;
	case LAPSE_EINVAL:
	case LAPSE_EMETHOD:
	case LAPSE_ECONFLICT:
	case LAPSE_EPRECONDITION:
	case LAPSE_EEXPIRED:
	case LAPSE_ETOOLARGE:
	case LAPSE_EMEDIATYPE:
	case LAPSE_EUNPROCESSABLE:
	case LAPSE_ELIMIT:
	case LAPSE_EHEADERS:
	case LAPSE_ERANGE:
	case LAPSE_EBUSY:
	case LAPSE_ECORRUPT:
	case LAPSE_EVERSION:
		return OUTCOME_REFUSED;
	}
	return OUTCOME_REFUSED;
}

enum outcome outcome_of_status(long status)
{
	if (status >= 200 && status < 300)
		return OUTCOME_OK;
	if (status == 401 || status == 403)
		return OUTCOME_DENIED;
	if (status == 404)
		return OUTCOME_NOT_FOUND;
	if (status >= 400 && status < 500)
		return OUTCOME_REFUSED;
	return status >= 500 ? OUTCOME_UNAVAILABLE : OUTCOME_UNREACHABLE;
}
