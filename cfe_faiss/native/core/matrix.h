#pragma once

#include "core/common.h"
